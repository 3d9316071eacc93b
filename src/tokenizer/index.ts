/**
 * Room: from text to token ids and back: tokenizer.json or a GGUF vocabulary, chat templates, text that streams, stop
 * texts. Read tokenizer.ts next.
 */

export { ggufTokenizerFiles } from './gguf_tokenizer.js';
export { StopScanner, type StopScan } from './stop_scanner.js';
export { TextStream, type TextStreamOptions } from './text_stream.js';
export { Tokenizer, type TokenizerFiles } from './tokenizer.js';
export type { ChatMessage, ChatTemplateOptions } from './chat_template.js';
