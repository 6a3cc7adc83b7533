# shellcheck shell=bash
# What stage 0 for recordings of one's own adds to run.sh: copy it to recipes/NAME/options.sh.
# shellcheck disable=SC2034,SC2154  # the other variables are run.sh's

# begin options
unknown_words=skip  # texts with words without a pronunciation: skip them, or stop with their list
lexicon=            # file of pronunciations, lines 'word phone phone ...' (default: cmudict alone)
# end options

check_recipe_options() {
  [[ $unknown_words =~ ^(stop|skip)$ ]] ||
    usage_error "--unknown-words must be stop or skip, not '$unknown_words'"
  [[ -z $lexicon || -f $lexicon ]] || usage_error "--lexicon $lexicon is not a file"
  prepare_options=(--unknown-words "$unknown_words")
  [[ -z $lexicon ]] || prepare_options+=(--lexicon "$lexicon")
}
