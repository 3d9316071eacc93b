export { ggufTokenizerFiles } from './gguf_tokenizer.js';
export { StopScanner, type StopScan } from './stop_scanner.js';
export { TextStream, type TextStreamOptions } from './text_stream.js';
export { loadTokenizer, Tokenizer, type TokenizerFiles } from './tokenizer.js';
export type { ChatMessage, ChatTemplateOptions } from './chat_template.js';
