/** What a page loads with its first tokenizer. */
export { AnswerReader } from '../chat_formats/answer_reader.js';
export { ChatFormat } from '../chat_formats/chat_format.js';
export { TemplateMessages } from '../chat_formats/template_messages.js';
export { ChatTemplates } from './chat_template.js';
export { checkTokenizer } from './check_tokenizer.js';
export { PlainText } from './plain_text.js';
export { cutLikeRust, rustSteps } from './steps/rust_steps.js';
