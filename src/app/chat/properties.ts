import type { AttentionDpOptions, LoadOptions } from '../../index.js';
import type { ChatElement } from './events.js';
import { type Attribute, ATTRIBUTES, NUMBERS, SWITCHES } from './settings.js';

/** 'max-tokens' → 'maxTokens'. */
export type CamelCase<T extends string> = T extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : T;

type Switch = (typeof SWITCHES)[number];
type NumberName = (typeof NUMBERS)[number];
type Gone = null | undefined;
type TextList = number | string | readonly (number | string)[];
/** What an attribute's property takes. A list is written with commas between. */
type ValueOf<Name extends Attribute> = Name extends Switch
  ? boolean | ''
  : Name extends NumberName | 'token'
    ? number | string
    : Name extends 'ranks' | 'memory'
      ? TextList
      : Name extends 'model'
        ? string | URL
        : Name extends 'attention-dp-config'
          ? string | AttentionDpOptions
          : Name extends 'cluster'
            ? string | ClusterAccess
            : string;

/** A cluster, and as whom one comes. */
export type ClusterAccess = NonNullable<LoadOptions['cluster']>;

/** What a template may give `<splitkv-chat>`: its attributes. */
export type ChatAttributes = { readonly [Name in Attribute]?: ValueOf<Name> | Gone };

/** Coloured code, or undefined to leave it plain. */
export type Highlight = (text: string, language: string) => Node | undefined;
/** TeX shown, or undefined to leave it as it was written. `display`: it stands by itself. */
export type MathHook = (tex: string, display: boolean) => Node | undefined;

/** What its properties may be set to. */
export type ChatPropertyValues = { readonly [Name in Attribute as CamelCase<Name>]?: ValueOf<Name> | Gone } & {
  readonly files?: readonly File[] | undefined;
  readonly highlight?: Highlight | undefined;
  readonly math?: MathHook | undefined;
};

/**
 * A property for each attribute, named in camel case (`maxTokens` is `max-tokens`): what is set becomes the attribute, null and undefined
 * take it away. Frameworks set properties where an element has them.
 */
export interface ChatProperties {
  get model(): string | undefined;
  set model(value: string | URL | Gone);
  get hub(): string | undefined;
  set hub(value: string | Gone);
  get ranks(): string | undefined;
  set ranks(value: TextList | Gone);
  /** A text: the attribute. An object: the option of `load`, with a token or a key, which markup never shows. */
  get cluster(): string | ClusterAccess | undefined;
  set cluster(value: string | ClusterAccess | Gone);
  get clusterName(): string | undefined;
  set clusterName(value: string | Gone);
  get plan(): string | undefined;
  set plan(value: string | Gone);
  get tensor(): number | undefined;
  set tensor(value: number | string | Gone);
  /** A number: the attribute. A text: an access token of the Hub. */
  get token(): number | string | undefined;
  set token(value: number | string | Gone);
  get sequence(): number | undefined;
  set sequence(value: number | string | Gone);
  get pipeline(): number | undefined;
  set pipeline(value: number | string | Gone);
  get data(): number | undefined;
  set data(value: number | string | Gone);
  get copies(): number | undefined;
  set copies(value: number | string | Gone);
  get kvBudget(): number | undefined;
  set kvBudget(value: number | string | Gone);
  get kvProfile(): string | undefined;
  set kvProfile(value: string | Gone);
  get weights(): string | undefined;
  set weights(value: string | Gone);
  get kv(): string | undefined;
  set kv(value: string | Gone);
  get prefixCaching(): boolean;
  set prefixCaching(value: boolean | '' | Gone);
  get variants(): string | undefined;
  set variants(value: string | Gone);
  get noTune(): boolean;
  set noTune(value: boolean | '' | Gone);
  get precision(): string | undefined;
  set precision(value: string | Gone);
  get context(): number | undefined;
  set context(value: number | string | Gone);
  get memory(): string | undefined;
  set memory(value: TextList | Gone);
  get attentionDpConfig(): string | undefined;
  set attentionDpConfig(value: string | AttentionDpOptions | Gone);
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
  get minP(): number | undefined;
  set minP(value: number | string | Gone);
  get repetitionPenalty(): number | undefined;
  set repetitionPenalty(value: number | string | Gone);
  get frequencyPenalty(): number | undefined;
  set frequencyPenalty(value: number | string | Gone);
  get presencePenalty(): number | undefined;
  set presencePenalty(value: number | string | Gone);
  get seed(): number | undefined;
  set seed(value: number | string | Gone);
  get system(): string | undefined;
  set system(value: string | Gone);
  get thinking(): string | undefined;
  set thinking(value: string | Gone);
  get about(): string | undefined;
  set about(value: string | Gone);
  get suggestions(): string | undefined;
  set suggestions(value: string | Gone);
  get settings(): boolean;
  set settings(value: boolean | '' | Gone);
  get picker(): boolean;
  set picker(value: boolean | '' | Gone);
  get keep(): string | undefined;
  set keep(value: string | Gone);
  get plain(): boolean;
  set plain(value: boolean | '' | Gone);
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
  // What it holds is a secret.
  if (name === 'cluster' && typeof value === 'object') return undefined;
  if (name === 'attention-dp-config' && typeof value === 'object') return JSON.stringify(value);
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
