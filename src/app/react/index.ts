/**
 * Room: models for React 18 and 19: `import { SplitkvChat, useModel, useConversation } from 'splitkv/react'`. chat.ts is the element
 * as a component; hooks.ts is for interfaces of one's own. Who takes the hooks alone gets nothing of the element.
 */
export { SplitkvChat, type SplitkvChatProps } from './chat.js';
export { useConversation, useModel, type UsedConversation, type UsedModel } from './hooks.js';
