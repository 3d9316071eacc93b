import { createElement, forwardRef, useEffect, useImperativeHandle, useRef } from 'react';
import type { CSSProperties, ForwardRefExoticComponent, RefAttributes } from 'react';
import {
  type Attribute,
  ATTRIBUTES,
  attributeText,
  type ChatPropertyValues,
  type SplitkvChat as SplitkvChatElement,
  type SplitkvChatEventMap,
} from '../chat/index.js';
import { camel } from '../../base/names.js';

const LISTENERS = {
  onState: 'splitkv-state',
  onPreview: 'splitkv-preview',
  onProgress: 'splitkv-progress',
  onReady: 'splitkv-ready',
  onPiece: 'splitkv-piece',
  onAnswer: 'splitkv-answer',
  onNew: 'splitkv-new',
  onError: 'splitkv-error',
} as const satisfies Readonly<Record<string, keyof SplitkvChatEventMap>>;

/** Called with the element's events: what one tells is its `detail`. */
type Listeners = {
  readonly [Name in keyof typeof LISTENERS]?:
    | ((event: SplitkvChatEventMap[(typeof LISTENERS)[Name]]) => void)
    | undefined;
};

export interface SplitkvChatProps extends ChatPropertyValues, Listeners {
  readonly className?: string | undefined;
  readonly id?: string | undefined;
  readonly style?: CSSProperties | undefined;
}

/**
 * A chat with a model that runs in the page: `<SplitkvChat model="/models/small/" onAnswer={({ detail }) => save(detail.text)} />`. Its
 * props are the element's properties; `ref` gives the element. On a server it renders the bare element.
 *
 * @example
 * ```tsx
 * import { SplitkvChat } from 'splitkv/react';
 *
 * export const Chat = () => (
 *   <SplitkvChat model="smollm2-360m-instruct" maxTokens={200} onAnswer={({ detail }) => console.log(detail.text)} />
 * );
 * ```
 */
export const SplitkvChat: ForwardRefExoticComponent<SplitkvChatProps & RefAttributes<SplitkvChatElement>> = forwardRef(
  function SplitkvChat(props: SplitkvChatProps, ref) {
    const element = useRef<SplitkvChatElement>(null);
    useImperativeHandle(ref, () => element.current!, []);
    /** Effects find the element there. */
    const on = (work: (chat: SplitkvChatElement) => void | (() => void)) => () =>
      element.current ? work(element.current) : undefined;
    const latest = useRef(props);
    useEffect(() => {
      latest.current = props;
    });
    const listen = on((chat) => {
      const gone = new AbortController();
      for (const name of Object.keys(LISTENERS) as (keyof typeof LISTENERS)[]) {
        const listener = (event: Event): void =>
          (latest.current[name] as ((event: Event) => void) | undefined)?.(event);
        chat.addEventListener(LISTENERS[name], listener, { signal: gone.signal });
      }
      return () => gone.abort();
    });
    useEffect(listen, []);
    const { files, hubToken, cluster, highlight, math, className, id, style } = props;
    const hook = on((chat) => void Object.assign(chat, { highlight, math }));
    useEffect(hook, [highlight, math]);
    const join = on((chat) => {
      // A text is an attribute, below.
      if (typeof cluster === 'object' || typeof chat.cluster === 'object') chat.cluster = cluster;
    });
    useEffect(join, [cluster]);
    const choose = on((chat) => {
      if (chat.files !== files) chat.files = files;
      if (chat.hubToken !== hubToken) chat.hubToken = hubToken;
    });
    useEffect(choose, [files, hubToken]);
    // As attributes, which React 18 and a server's markup need.
    const attributes = (Object.keys(ATTRIBUTES) as Attribute[]).map((name) => [
      name,
      attributeText(name, (props as Record<string, unknown>)[camel(name)]),
    ]);
    return createElement('splitkv-chat', {
      ...Object.fromEntries(attributes),
      class: className,
      id,
      style,
      ref: element,
    });
  },
);
