import { camel, type Dashed } from '../../base/names.js';
import { isSwitch, type OptionRow } from '../../engine/contracts/options/row.js';
import type { ErrorCode, GenerateResult, LoadOptions, LoadProgress, Model, PlanReport } from '../../index.js';
import type { ChatState } from './session.js';
import type { ChatProperties, Gone, WideProperties } from '../../../generated/chat_properties.js';
import { type Attribute, ATTRIBUTE_ROWS } from './chat_rows.js';

/** What an attribute's property takes, by its name and what is read from it. */
type Settable<Name, Value> = Name extends keyof WideProperties
  ? WideProperties[Name]
  : [Value] extends [boolean]
    ? boolean | ''
    : number extends Value
      ? number | string
      : string;

/** A cluster, and as whom one comes. */
export type ClusterAccess = NonNullable<LoadOptions['cluster']>;

/** What a template may give `<splitkv-chat>`: its attributes. */
export type ChatAttributes = {
  readonly [Name in keyof ChatProperties as Dashed<Name>]?: Settable<Name, ChatProperties[Name]> | Gone;
};

/** Coloured code, or undefined to leave it plain. */
export type Highlight = (text: string, language: string) => Node | undefined;
/** TeX shown, or undefined to leave it as it was written. `display`: it stands by itself. */
export type MathHook = (tex: string, display: boolean) => Node | undefined;

/** What its properties may be set to. */
export type ChatPropertyValues = {
  readonly [Name in keyof ChatProperties]?: Settable<Name, ChatProperties[Name]> | Gone;
} & {
  readonly files?: readonly File[] | undefined;
  readonly hubToken?: string | undefined;
  readonly highlight?: Highlight | undefined;
  readonly math?: MathHook | undefined;
};

const isNumber = ({ range, type }: OptionRow): boolean => range !== undefined && type === undefined;

/** Of a property's value the attribute's text, for frameworks; undefined: no attribute. In markup an empty text turns a switch on, and is no number. */
export function attributeText(name: Attribute, value: unknown): string | undefined {
  const [, row] = ATTRIBUTE_ROWS[name];
  if (isSwitch(row)) return value === '' || Boolean(value) ? '' : undefined;
  if (value === null || value === undefined || value === false) return undefined;
  if (isNumber(row) && value === '') return undefined;
  // What it holds is a secret.
  if (name === 'cluster' && typeof value === 'object') return undefined;
  if (name === 'attention-dp-config' && typeof value === 'object') return JSON.stringify(value);
  return String(value as string | number | URL);
}

/** The class that the element extends: ChatProperties, which read and write attributes. */
export function withProperties(base: typeof HTMLElement): { new (): ChatElement; readonly prototype: ChatElement } {
  const Reflecting = class extends base {};
  for (const [name, [, row]] of Object.entries(ATTRIBUTE_ROWS)) {
    Object.defineProperty(Reflecting.prototype, camel(name), {
      configurable: true,
      enumerable: true,
      get(this: HTMLElement) {
        const text = this.getAttribute(name);
        if (isSwitch(row)) return text !== null;
        return text === null ? undefined : isNumber(row) ? Number(text) : text;
      },
      set(this: HTMLElement, value: unknown) {
        const text = attributeText(name as Attribute, value);
        if (text === undefined) this.removeAttribute(name);
        else if (text !== this.getAttribute(name)) this.setAttribute(name, text);
      },
    });
  }
  return Reflecting as unknown as ReturnType<typeof withProperties>;
}

/** Properties that were set before the element's script had come hide those of the class: each is taken away and set anew. */
export function adoptProperties(element: object, names: readonly string[]): void {
  for (const name of names) {
    if (!Object.hasOwn(element, name)) continue;
    const value = Reflect.get(element, name) as unknown;
    Reflect.deleteProperty(element, name);
    Reflect.set(element, name, value);
  }
}

/** The events of `<splitkv-chat>`, by name. */
export interface SplitkvChatEventMap {
  'splitkv-state': CustomEvent<{ readonly state: ChatState }>;
  'splitkv-preview': CustomEvent<PlanReport>;
  'splitkv-progress': CustomEvent<LoadProgress>;
  'splitkv-ready': CustomEvent<{ readonly model: Model }>;
  'splitkv-piece': CustomEvent<{ readonly text: string }>;
  'splitkv-answer': CustomEvent<{ readonly text: string; readonly result: GenerateResult }>;
  /** Somebody begins a new conversation; a page that prevents it does that otherwise. */
  'splitkv-new': CustomEvent<Readonly<Record<string, never>>>;
  'splitkv-error': CustomEvent<{ readonly code: ErrorCode; readonly message: string }>;
}

type EventMap = HTMLElementEventMap & SplitkvChatEventMap;

interface Listen<Options> {
  <K extends keyof EventMap>(
    type: K,
    listener: (this: ChatElement, event: EventMap[K]) => unknown,
    options?: boolean | Options,
  ): void;
  (type: string, listener: EventListenerOrEventListenerObject, options?: boolean | Options): void;
}

/** An element with these events and a property for each attribute. */
export interface ChatElement extends HTMLElement, ChatProperties {
  addEventListener: Listen<AddEventListenerOptions>;
  removeEventListener: Listen<EventListenerOptions>;
}
