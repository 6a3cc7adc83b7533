# shellcheck shell=bash
# Options in Kaldi's manner. To be sourced after a block of defaults in the calling script:
#
#   # begin options
#   stage=0          # first stage to run
#   corpus_dir=      # folder of the corpus
#   # end options
#   source local/parse_options.sh
#
# Each line of the block is one option, here --stage and --corpus-dir, its default and its help.
# `--name value` and `--name=value` set the variable; --help lists the options and exits with 0.
# Anything else is an error with exit status 2.
#
# Files of the array option_files have such blocks, too: of options that not every call knows. The text
# of help_end, if any, ends the help.

option_lines() {
  sed -n '/^# begin options$/,/^# end options$/p' "$0" ${option_files[@]+"${option_files[@]}"} |
    grep -E '^[a-z][a-z0-9_]*='
}

[[ -v option_files ]] || option_files=()

usage_error() {
  echo "${0##*/}: $* (--help lists the options)" >&2
  exit 2
}

print_help() {
  echo "Usage: $0 [--name value ...]"
  echo
  option_lines | while IFS= read -r line; do
    name=${line%%=*}
    default=${line#*=}
    default=${default%%#*}
    default=${default%"${default##*[! ]}"}
    printf '  --%-16s %s%s\n' "${name//_/-}" "${line#*# }" "${default:+ (default: $default)}"
  done
  [[ -z ${help_end:-} ]] || printf '\n%s\n' "$help_end"
}

# Of a script with recipes, an option may be another recipe's.
unknown_option() { usage_error "unknown option $1${recipe:+ for recipe $recipe}"; }

# The names, with a space on both sides of each.
option_names=" $(option_lines | sed 's/=.*//' | tr '\n' ' ')"

while (($#)); do
  case $1 in
    --help | -h)
      print_help
      exit 0
      ;;
    --*=*)
      option=${1%%=*}
      value=${1#*=}
      shift
      ;;
    --*)
      option=$1
      if (($# < 2)) || [[ $2 == --* ]]; then
        [[ $option_names != *" $(tr - _ <<<"${option#--}") "* ]] || usage_error "$option needs a value"
        unknown_option "$option"
      fi
      value=$2
      shift 2
      ;;
    *) usage_error "unexpected argument $1" ;;
  esac
  name=${option#--}
  name=${name//-/_}
  [[ $option_names == *" $name "* ]] || unknown_option "$option"
  printf -v "$name" '%s' "$value"
done
unset option value name option_names
