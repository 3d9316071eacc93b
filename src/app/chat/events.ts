import type { ErrorCode, GenerateResult, LoadProgress, Model, PlanReport } from '../../index.js';
import type { ChatProperties } from './chat_properties.js';
import type { ChatState } from './session.js';

/** The events of `<splitkv-chat>`, by name. */
export interface SplitkvChatEventMap {
  'splitkv-state': CustomEvent<{ readonly state: ChatState }>;
  'splitkv-preview': CustomEvent<PlanReport>;
  'splitkv-progress': CustomEvent<LoadProgress>;
  'splitkv-ready': CustomEvent<{ readonly model: Model }>;
  'splitkv-piece': CustomEvent<{ readonly text: string }>;
  'splitkv-answer': CustomEvent<{ readonly text: string; readonly result: GenerateResult }>;
  'splitkv-error': CustomEvent<{ readonly code: ErrorCode; readonly message: string }>;
}

type EventMap = HTMLElementEventMap & SplitkvChatEventMap;

/** An element with these events and a property for each attribute. */
export interface ChatElement extends HTMLElement, ChatProperties {
  addEventListener<K extends keyof EventMap>(
    type: K,
    listener: (this: ChatElement, event: EventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof EventMap>(
    type: K,
    listener: (this: ChatElement, event: EventMap[K]) => unknown,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | EventListenerOptions,
  ): void;
}
