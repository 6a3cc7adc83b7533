# shellcheck shell=bash
# What this recipe adds to run.sh; see local/recipe_options.sh.

check_recipe_options() {
  corpus=${corpus:-espeak}
}
