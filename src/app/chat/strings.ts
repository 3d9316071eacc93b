import type { ErrorCode } from '../../base/errors.js';
import type { Snake } from '../../base/names.js';
import type { RecommendedSampling } from '../../index.js';
import { ATTRIBUTE_ROWS } from './chat_rows.js';
import TEXTS from './texts.json' with { type: 'json' };

/** Numbers of the settings. */
type Labelled = Snake<keyof RecommendedSampling | 'maxTokens' | 'context'>;
export type StringName = keyof typeof TEXTS | `set_${Labelled}`;
export type ChatStrings = Readonly<Record<StringName, string>>;

/**
 * Every text of the element, by name; `{x}` stands for what is filled in. A page gives its own by `element.strings`: the ones it
 * leaves out stay as here.
 */
export const STRINGS: ChatStrings = {
  ...(TEXTS satisfies Record<`${'title' | 'advice'}_${ErrorCode}`, string>),
  ...(Object.fromEntries(
    Object.entries(ATTRIBUTE_ROWS).flatMap(([own, [, { sheet }]]) =>
      sheet ? [[`set_${own.replaceAll('-', '_')}`, sheet.label]] : [],
    ),
  ) as Readonly<Record<`set_${Labelled}`, string>>),
};

/** A text by its name, with its blanks filled in. */
export type Say = (name: StringName, values?: Readonly<Record<string, string | number>>) => string;
export const sayOf =
  (strings: ChatStrings): Say =>
  (name, values = {}) =>
    strings[name].replace(/\{(\w+)\}/g, (blank, value: string) => (value in values ? String(values[value]) : blank));
export const SAY = sayOf(STRINGS);
