/**
 * Fields that others' APIs have and that this server doesn't do: what would change an answer, or its form, is refused unless it has
 * a value that asks for nothing. What is done is in the schemas; all else is ignored, and named in a header. Nested ones are
 * written with a dot. docs/serving.md lists them.
 */

export type Api =
  | 'chat'
  | 'completions'
  | 'responses'
  | 'messages'
  | 'embeddings'
  | 'rerank'
  | 'tokenize'
  | 'ollama'
  | 'llamaCpp';

export interface Refusal {
  /** Values that ask for nothing. */
  readonly neutral: readonly unknown[];
  /** What to do. */
  readonly instead?: string;
  /** Stable, for clients that go another way by themselves. */
  readonly code?: string;
}
type Refusals = Readonly<Record<string, Refusal>>;

const no = (instead?: string, ...neutral: readonly unknown[]): Refusal => ({
  neutral,
  ...(instead !== undefined && { instead }),
});

const CONTEXT = 'send no more than the context holds';
const SAMPLERS = 'use temperature, top_k, top_p and min_p';

const REFUSED: Refusals = {
  // OpenAI's.
  audio: no(),
  best_of: no('use n', 1),
  function_call: no('use tool_choice', 'none', 'auto'),
  functions: no('use tools', []),
  modalities: no(undefined, ['text']),
  moderation: no(),
  suffix: no(undefined, ''),
  web_search_options: no(),
  // vLLM's.
  allowed_token_ids: no('use choice, regex or grammar'),
  bad_words: no('use logit_bias', []),
  chat_template: no("chats are written by the model's own template"),
  documents: no('write them into a message', []),
  guided_whitespace_pattern: no('use a grammar'),
  include_reasoning: no('leave reasoning_content unread', true),
  include_stop_str_in_output: no(undefined, false),
  kv_transfer_params: no(),
  logits_processors: no('use logit_bias', []),
  prompt_embeds: no('send prompt'),
  prompt_logprobs: no('use echo and logprobs of /v1/completions'),
  return_token_ids: no('use /tokenize', false),
  return_tokens_as_token_ids: no(undefined, false),
  skip_special_tokens: no(undefined, true),
  structural_tag: no('use tools or a grammar'),
  'structured_outputs.disable_additional_properties': no('say additionalProperties in the schema', false),
  'structured_outputs.disable_any_whitespace': no('use a grammar', false),
  'structured_outputs.structural_tag': no('use tools or a grammar'),
  'structured_outputs.whitespace_pattern': no('use a grammar'),
  thinking_token_budget: no('use enable_thinking or max_tokens'),
  truncate_prompt_tokens: no(CONTEXT),
  use_beam_search: no('use n', false),
  // llama.cpp's.
  adaptive_target: no(SAMPLERS, -1),
  dry_multiplier: no('use frequency_penalty', 0),
  dynatemp_range: no(SAMPLERS, 0),
  grammar_lazy: no(undefined, false),
  grammar_triggers: no(undefined, []),
  image_data: no('this model takes text only', []),
  input_extra: no(undefined, []),
  input_prefix: no(undefined, ''),
  input_suffix: no(undefined, ''),
  lora: no(undefined, []),
  mirostat: no(SAMPLERS, 0),
  n_indent: no(undefined, 0),
  n_probs: no('use logprobs', 0),
  parse_tool_calls: no(undefined, true),
  penalty_prompt: no(),
  post_sampling_probs: no('use logprobs', false),
  reasoning_budget: no('use enable_thinking', -1),
  response_fields: no(undefined, []),
  return_tokens: no('use /tokenize', false),
  t_max_predict_ms: no('use max_tokens', 0, -1),
  t_max_prompt_ms: no(CONTEXT, 0, -1),
  tfs_z: no(SAMPLERS, 1),
  thinking_budget_tokens: no('use enable_thinking or max_tokens', -1),
  thinking_forced_open: no('use enable_thinking', false),
  top_n_sigma: no(SAMPLERS, -1, 0),
  typical_p: no(SAMPLERS, 1),
  xtc_probability: no(SAMPLERS, 0),
  // SGLang's.
  custom_logit_processor: no('use logit_bias'),
  ebnf: no('use grammar'),
  lora_path: no(),
  no_stop_trim: no(undefined, false),
  return_hidden_states: no('use /v1/embeddings', false),
  session_params: no(),
  stop_regex: no('use stop'),
};

/** Of an API by itself, before those of all. */
const REFUSED_BY: Readonly<Partial<Record<Api, Refusals>>> = {
  chat: {
    add_special_tokens: no('the template writes them', false),
    echo: no(undefined, false),
    prompt: no('send messages'),
  },
  completions: {
    add_special_tokens: no('send token ids', true),
    messages: no('use /v1/chat/completions'),
    tool_choice: no('use /v1/chat/completions', 'none', 'auto'),
    tools: no('use /v1/chat/completions', []),
  },
  responses: {
    conversation: no('use previous_response_id, or send the turns as input'),
    max_tokens: no('send max_output_tokens'),
    messages: no('send input'),
    n: no(undefined, 1),
    prompt: no('send its text as instructions and input'),
    response_format: no('send text.format', { type: 'text' }),
  },
  messages: {
    compaction: no('ask for a summary in a message'),
    container: no(),
    mcp_servers: no('send their tools as tools', []),
    n: no(undefined, 1),
    stop: no('send stop_sequences', []),
    thread: {
      neutral: [],
      code: 'thread_unsupported_request',
      instead: 'send the whole conversation with every request',
    },
  },
  ollama: {
    context: no('send the turns as messages of /api/chat', []),
    max_tokens: no('send options.num_predict'),
    template: no("chats are written by the model's own template", ''),
  },
  embeddings: {
    add_special_tokens: no('send token ids', true),
    embd_normalize: no('vectors have a length of 1', 2),
    embed_dtype: no(undefined, 'float32'),
    endianness: no(undefined, 'native', 'little'),
    messages: no('send input'),
    normalize: no('vectors have a length of 1', true),
    use_activation: no('vectors have a length of 1', true),
  },
};

/** What is to change nothing of an answer: nobody need be told. `session` is what gateways look at. */
const SILENT: readonly string[] = [
  'max_tool_calls',
  'metadata',
  'parallel_tool_calls',
  'prompt_cache_key',
  'prompt_cache_retention',
  'safety_identifier',
  'service_tier',
  'session',
  'store',
  'stream_options.include_obfuscation',
  'user',
];

/** What becomes of a field that isn't in an API's schema; undefined: it is ignored, and named. */
export function sortOf(api: Api, within: string): Refusal | 'silent' | undefined {
  const name = within.replace(/^options\./, '');
  for (const rows of [REFUSED_BY[api] ?? {}, REFUSED]) if (Object.hasOwn(rows, name)) return rows[name];
  return SILENT.includes(name) ? 'silent' : undefined;
}

/** All that are refused, of whatever API. */
export const REFUSED_NAMES = [REFUSED, ...Object.values(REFUSED_BY)].flatMap((rows) => Object.keys(rows));
