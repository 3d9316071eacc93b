/**
 * Room: `<splitkv-chat>`, a chat in one tag: `import 'splitkv/chat'` makes it known to the page. element.ts is the
 * tag, session.ts what it does without a page, settings.ts its attributes. Read element.ts next.
 */

/** `import 'splitkv/chat'` makes `<splitkv-chat>` known to the page. */
import { SplitkvChat } from './element.js';

export { SplitkvChat } from './element.js';
export type { Attached } from './attached.js';
export type { ChatProperties } from '../../../generated/chat_properties.js';
export { attributeText } from './properties.js';
export type { ChatAttributes, ChatElement, ChatPropertyValues, SplitkvChatEventMap } from './properties.js';
export type { MadeCall, PageTool, PageTools } from './page_tools.js';
export type { Answer, ChatState, ShownMessage, ToolStep } from './session.js';
export type { Attribute } from './chat_rows.js';
export { ATTRIBUTES } from './settings.js';
export { type ChatStrings, STRINGS } from './strings.js';

declare global {
  interface HTMLElementTagNameMap {
    'splitkv-chat': SplitkvChat;
  }
}

// A page may import two copies, by two ways: the first one serves.
const registry = (globalThis as Partial<typeof globalThis>).customElements;
if (registry && !registry.get('splitkv-chat')) registry.define('splitkv-chat', SplitkvChat);
