/**
 * Room: from text to token ids and back: tokenizer.json or a GGUF vocabulary, chat templates, text that streams, stop
 * texts. Read tokenizer.ts next.
 */

export { ggufTokenizerFiles } from './gguf_tokenizer.js';
export { StopScanner } from './stop_scanner.js';
export { TextStream, Tokenizer, type TokenizerFiles } from './tokenizer.js';
export type { ChatMessage } from '../chat_formats/template_messages.js';
