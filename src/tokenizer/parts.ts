/** What a page loads with its first tokenizer. */
export { ChatTemplates } from './chat_template.js';
export { checkTokenizer } from './check_tokenizer.js';
