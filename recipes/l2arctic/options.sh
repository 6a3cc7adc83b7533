# shellcheck shell=bash
# What this recipe adds to run.sh; see local/recipe_options.sh.
# shellcheck disable=SC2034,SC2154  # the other variables are run.sh's

# begin options
protocol=text       # canonical units of the text, or the annotators' own: text or annotation
unit=phone          # phone, or bpe: BPE tokens, which need no lexicon
unknown_words=stop  # words without a pronunciation: stop with their list, or skip the utterances
lexicon=            # file of pronunciations, lines 'word phone phone ...' (default: cmudict alone)
suitcase=false      # true takes the spontaneous recordings as well
vocab_size=         # BPE tokens with --unit bpe (default: 200)
# end options

check_recipe_options() {
  if [[ -z $corpus ]]; then
    corpus=simulate
    [[ -z $corpus_dir ]] || corpus=l2arctic
  fi
  [[ $corpus =~ ^(simulate|l2arctic)$ ]] ||
    usage_error "recipe l2arctic has the corpora simulate and l2arctic, not '$corpus'"
  [[ $protocol =~ ^(text|annotation)$ ]] ||
    usage_error "--protocol must be text or annotation, not '$protocol'"
  [[ $unit =~ ^(phone|bpe)$ ]] || usage_error "--unit must be phone or bpe, not '$unit'"
  [[ $unknown_words =~ ^(stop|skip)$ ]] ||
    usage_error "--unknown-words must be stop or skip, not '$unknown_words'"
  [[ $suitcase =~ ^(true|false)$ ]] || usage_error "--suitcase must be true or false, not '$suitcase'"
  [[ -z $lexicon || -f $lexicon ]] || usage_error "--lexicon $lexicon is not a file"
  [[ -z $lexicon || $protocol/$unit == text/phone ]] ||
    usage_error "--lexicon goes with --protocol text and --unit phone: nothing else looks words up"
  [[ -z $vocab_size || $vocab_size =~ ^[1-9][0-9]{0,8}$ ]] ||
    usage_error "--vocab-size must be a positive number of at most 9 digits, not '$vocab_size'"
  [[ -z $vocab_size || $unit == bpe ]] || usage_error "--vocab-size goes with --unit bpe"
  [[ $unit == phone || $protocol == text ]] || usage_error "--unit bpe goes with --protocol text"

  # Protocols and units lie side by side, and share what is simulated.
  corpus_name=$corpus
  [[ $protocol == text ]] || corpus_name+=-$protocol
  [[ $unit == phone ]] || corpus_name+=-$unit
  [[ $corpus != simulate ]] || corpus_dir=${corpus_dir:-$data_dir/simulate/corpus}
  prepare_options=(--protocol "$protocol" --unit "$unit" --unknown-words "$unknown_words")
  [[ -z $lexicon ]] || prepare_options+=(--lexicon "$lexicon")
  [[ $suitcase == false ]] || prepare_options+=(--suitcase)
  [[ -z $vocab_size ]] || units_options=(--vocab-size "$vocab_size")
}
