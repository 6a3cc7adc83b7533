# shellcheck shell=bash
# What this recipe adds to run.sh; see local/recipe_options.sh.

check_recipe_options() {
  [[ -n $corpus || -z $corpus_dir ]] ||
    usage_error "--corpus-dir needs --corpus: fsdd or audiomnist, whichever lies there"
  corpus=${corpus:-espeak}
}
