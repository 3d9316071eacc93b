import type { ChatElement } from './events.js';
import { type Attribute, ATTRIBUTES, NUMBERS, SWITCHES } from './settings.js';

/** 'max-tokens' → 'maxTokens'. */
export type CamelCase<T extends string> = T extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : T;

export type SwitchAttribute = (typeof SWITCHES)[number];
export type NumberAttribute = (typeof NUMBERS)[number];
/** Attributes that are a text. Those that also take what is no text are written as text: a URL, a number of ranks, a list with commas between. */
export type TextAttribute = Exclude<Attribute, SwitchAttribute | NumberAttribute>;
type Gone = null | undefined;
export type TextValue<Name extends TextAttribute> =
  | string
  | (Name extends 'model' ? URL : Name extends 'ranks' | 'memory' ? number | readonly (string | number)[] : never);

/**
 * A property for each attribute, named in camel case (`maxTokens` is `max-tokens`): what is set becomes the attribute, null and undefined
 * take it away. Frameworks set properties where an element has them.
 */
export interface ChatProperties {
  get model(): string | undefined;
  set model(value: TextValue<'model'> | Gone);
  get ranks(): string | undefined;
  set ranks(value: TextValue<'ranks'> | Gone);
  get plan(): string | undefined;
  set plan(value: string | Gone);
  get weights(): string | undefined;
  set weights(value: string | Gone);
  get kv(): string | undefined;
  set kv(value: string | Gone);
  get context(): number | undefined;
  set context(value: number | string | Gone);
  get memory(): string | undefined;
  set memory(value: TextValue<'memory'> | Gone);
  get workers(): boolean;
  set workers(value: boolean | '' | Gone);
  get virtual(): boolean;
  set virtual(value: boolean | '' | Gone);
  get autostart(): boolean;
  set autostart(value: boolean | '' | Gone);
  get noSelfTest(): boolean;
  set noSelfTest(value: boolean | '' | Gone);
  get maxTokens(): number | undefined;
  set maxTokens(value: number | string | Gone);
  get temperature(): number | undefined;
  set temperature(value: number | string | Gone);
  get topP(): number | undefined;
  set topP(value: number | string | Gone);
  get topK(): number | undefined;
  set topK(value: number | string | Gone);
  get seed(): number | undefined;
  set seed(value: number | string | Gone);
  get system(): string | undefined;
  set system(value: string | Gone);
  get about(): string | undefined;
  set about(value: string | Gone);
  get suggestions(): string | undefined;
  set suggestions(value: string | Gone);
  get label(): string | undefined;
  set label(value: string | Gone);
  get placeholder(): string | undefined;
  set placeholder(value: string | Gone);
}

const includes = (list: readonly Attribute[], name: Attribute): boolean => list.includes(name);

/** The attribute's text for a value; undefined: no attribute. In markup an empty text turns a switch on, and is no number. */
export function attributeText(name: Attribute, value: unknown): string | undefined {
  if (includes(SWITCHES, name)) return value === '' || Boolean(value) ? '' : undefined;
  if (value === null || value === undefined || value === false) return undefined;
  if (includes(NUMBERS, name) && value === '') return undefined;
  return String(value as string | number | URL);
}

export const propertyName = (name: string): string =>
  name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

/** The class that the element extends: ChatProperties, which read and write attributes. */
export function withProperties(base: typeof HTMLElement): { new (): ChatElement; readonly prototype: ChatElement } {
  const Reflecting = class extends base {};
  for (const name of Object.keys(ATTRIBUTES) as Attribute[]) {
    Object.defineProperty(Reflecting.prototype, propertyName(name), {
      configurable: true,
      enumerable: true,
      get(this: HTMLElement) {
        const text = this.getAttribute(name);
        if (includes(SWITCHES, name)) return text !== null;
        return text === null ? undefined : includes(NUMBERS, name) ? Number(text) : text;
      },
      set(this: HTMLElement, value: unknown) {
        const text = attributeText(name, value);
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
