# shellcheck shell=bash
# What this recipe adds to run.sh; see local/recipe_options.sh.
# shellcheck disable=SC2034,SC2154  # the other variables are run.sh's

# begin options
protocol=           # canonical units of the text, or the corpus's own: text or corpus (default: corpus where it has phones)
unknown_words=skip  # words of the text without a pronunciation: skip their utterances, or stop with their list
lexicon=            # file of pronunciations, lines 'word phone phone ...' (default: cmudict alone)
digit_strings=false # true keeps strings of digits from training, and tests them with a word of the text changed
# end options

check_recipe_options() {
  corpus=${corpus:-speechocean762}
  [[ $corpus == speechocean762 ]] ||
    usage_error "recipe speechocean762 has the corpus speechocean762, not '$corpus'"
  [[ -n $corpus_dir || $stage != 0 ]] ||
    usage_error "recipe speechocean762 needs --corpus-dir: a folder of the corpus, https://www.openslr.org/101"
  [[ $protocol =~ ^(text|corpus)?$ ]] || usage_error "--protocol must be text or corpus, not '$protocol'"
  [[ $split =~ ^(official|speakers)?$ ]] ||
    usage_error "--split must be official or speakers, not '$split'"
  [[ $unknown_words =~ ^(stop|skip)$ ]] ||
    usage_error "--unknown-words must be stop or skip, not '$unknown_words'"
  [[ -z $lexicon || -f $lexicon ]] || usage_error "--lexicon $lexicon is not a file"
  [[ -z $lexicon || $protocol != corpus ]] ||
    usage_error "--lexicon goes with --protocol text: nothing else looks words up"

  [[ $digit_strings =~ ^(true|false)$ ]] ||
    usage_error "--digit-strings must be true or false, not '$digit_strings'"

  # Protocols and splits lie side by side.
  corpus_name=$corpus${protocol:+-$protocol}${split:+-$split}
  prepare_options=(--unknown-words "$unknown_words")
  [[ -z $protocol ]] || prepare_options+=(--protocol "$protocol")
  if [[ $digit_strings == true ]]; then
    corpus_name+=-digits
    prepare_options+=(--digit-strings)
  fi
  [[ -z $lexicon ]] || prepare_options+=(--lexicon "$lexicon")
}
