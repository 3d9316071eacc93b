import { useState, useSyncExternalStore } from 'react';
import type { ConversationOptions, Model } from '../../index.js';
import { conversationStore, modelStore } from '../stores/index.js';
import type { ConversationState, ConversationStore, ModelSource, ModelState, ModelStore } from '../stores/index.js';
import type { ModelStoreOptions, Store } from '../stores/index.js';

export type UsedModel = ModelState & Omit<ModelStore, keyof Store<unknown>>;
export type UsedConversation = ConversationState & Omit<ConversationStore, keyof Store<unknown>>;

const NONE: ModelState = { model: undefined, progress: undefined, error: undefined };

/** A model as of `modelStore`: loaded once for all components that ask for it, until the last of them is gone; none on a server. */
export function useModel(source: ModelSource, options?: ModelStoreOptions): UsedModel {
  const { get, subscribe, ...used } = modelStore(source, options);
  return { ...useSyncExternalStore(subscribe, get, () => NONE), ...used };
}

/**
 * A conversation with it, as of `conversationStore`, with at most a render a frame. With another model one begins anew.
 *
 * @example
 * ```tsx
 * import { useConversation, useModel } from 'splitkv/react';
 *
 * export function Chat() {
 *   const { messages, send } = useConversation(useModel('smollm2-360m-instruct').model, { system: 'Be short.' });
 *   return <button onClick={() => send('Hello')}>{messages.map(({ content }) => String(content))}</button>;
 * }
 * ```
 */
export function useConversation(model: Model | undefined, options?: ConversationOptions): UsedConversation {
  // Options are objects anew with each render. A memo would be made anew, too, when the component's code changes.
  const open = () => ({ model, store: conversationStore(model, options) });
  const [held, hold] = useState(open);
  const now = held.model === model ? held : open();
  if (now !== held) hold(now);
  const { get, subscribe, ...used } = now.store;
  return { ...useSyncExternalStore(subscribe, get, get), ...used };
}
