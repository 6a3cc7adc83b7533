# shellcheck shell=bash
# What a recipe adds to run.sh, which sources this before its options are parsed. The file
# recipes/RECIPE/options.sh of the recipe in "$@" is sourced; it may have a block of options of its
# own, as local/parse_options.sh reads them, and defines
#
#   check_recipe_options   to be called after parsing: sets `corpus` where it is empty, and may set
#     corpus_name          folder of the data and results (default: the corpus)
#     prepare_options      further options of stage 0, an array
#     units_options        further options of stage 2, an array
#     init_options         further options of stages 2, 3 and 4: what training begins from, an array
#
# Before that it may set `systems`, its own default, and `corpus_may_be_file`, which is true where
# --corpus-dir need not be a folder.
#
# shellcheck disable=SC2034  # the variables are run.sh's

# names_in FOLDER END: the names in it that end in END, or hold a file END, without it.
names_in() {
  local path names=""
  for path in "$1"/*"$2"; do
    path=${path%"$2"}
    [[ ! -e $path$2 ]] || names+=${names:+, }${path##*/}
  done
  echo "${names:-none}"
}

corpus_name=
prepare_options=()
units_options=()
init_options=()
option_files=()
corpus_may_be_file=false

for ((place = 1; place <= $#; place++)); do
  case ${!place} in
    --recipe=*) recipe=${!place#*=} ;;
    --recipe) ((place == $#)) || recipe=${*:place + 1:1} ;;
  esac
done
unset place

# declared_systems: a line for each system of recipes/systems.yaml, its name and what it is.
declared_systems() {
  awk '/^  [^ #]+:$/ { name = $1 }
    /^    note: / { sub(/^    note: /, ""); gsub(/"/, ""); print "  " name " " $0 }' "$root/recipes/systems.yaml"
}

# shellcheck disable=SC2154  # root and recipe are run.sh's, too
help_end="Systems of all recipes; a config may declare more:
$(declared_systems)

Recipes: $(names_in "$root/recipes" /prepare.py). Each may have options of its own, which are listed with
its name, as in: $0 --recipe l2arctic --help"

# A recipe that is not there is named by run.sh, after parsing.
check_recipe_options() { :; }
if [[ $recipe =~ ^[A-Za-z0-9._-]+$ && -f $root/recipes/$recipe/options.sh ]]; then
  option_files=("$root/recipes/$recipe/options.sh")
  # shellcheck source=/dev/null
  source "${option_files[0]}"
fi
