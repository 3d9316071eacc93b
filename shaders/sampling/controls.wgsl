/// A slot's controls of what may be sampled; controls.ts writes it.
struct SlotControls {
  /// 0: the logits stay as they are; 2: not all tokens are allowed.
  is_on: u32,
  /// The position at which nothing was generated yet.
  begin: u32,
  /// The position of the step that samples from the prompt, which feeds no token; NO_TOKEN: there is none.
  first: u32,
  min_tokens: u32,
  repetition_penalty: f32,
  frequency_penalty: f32,
  presence_penalty: f32,
  /// Tokens that are more nats below the best than this are dropped: -ln(min_p).
  reach: f32,
}
