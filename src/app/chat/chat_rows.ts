import type { Dashed } from '../../base/names.js';
import { LOAD_ROWS } from '../../engine/contracts/options/load_rows.js';
import { type OptionRow, rowsAt } from '../../engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../../engine/contracts/options/sampling_rows.js';
import type { ChatProperties } from '../../../generated/chat_properties.js';

/** An attribute that is no option of the library. */
interface ChatRow extends OptionRow {
  /** What a change of it is: of what is shown, or of how it answers; otherwise the model is loaded again. */
  readonly changes?: 'looks' | 'answers';
}

const flag = { type: 'boolean' } as const;
const text = { type: 'string' } as const;

/** What the element has beside the options of a load and of sampling. */
export const CHAT_ROWS = {
  model: {
    help: 'URL of a model folder or .gguf file, relative to the page; or a model of the Hugging Face Hub: hf:ORG/NAME[@REVISION][/FILE.gguf], ORG/NAME where the page has no such folder, or a name of the catalog',
    type: 'string | URL',
    page: 'models.md',
  },
  clusterName: { help: 'tells clusters of one server apart', default: 'main', ...text, page: 'cluster.md' },
  autostart: { help: 'downloads without asking first', ...flag, changes: 'answers' },
  selfTest: {
    help: 'the check of a few tokens before the first question',
    type: 'boolean',
    isOn: true,
    changes: 'answers',
  },
  maxTokens: {
    help: 'tokens of an answer',
    default: 512,
    range: { integer: true, low: 1 },
    changes: 'answers',
    sheet: { label: 'Longest answer, tokens', min: 1, max: 1_000_000 },
  },
  system: { help: 'the system message', ...text, changes: 'answers' },
  thinking: {
    help: 'whether a model that can thinks before it answers',
    default: "as the model's makers do",
    choices: ['on', 'off'],
    changes: 'answers',
  },
  about: {
    help: 'a text that every question is about: each is asked by itself, after this text',
    ...text,
    changes: 'answers',
  },
  suggestions: { help: 'questions to offer, with | between', ...text, changes: 'looks' },
  settings: { help: 'people may change how it answers, the context and the weights', ...flag, changes: 'looks' },
  picker: {
    help: 'people may choose another model, and delete those that this browser keeps',
    ...flag,
    changes: 'looks',
  },
  keep: {
    help: 'a name: the conversation is kept in this browser by it, with its keys and values, and is there after a reload; tabs with one name show each other what was said',
    ...text,
    changes: 'looks',
  },
  plain: { help: 'answers are shown as they were written, without Markdown', ...flag, changes: 'looks' },
  label: { help: "the chat's name, as screen readers say it", default: 'Chat', ...text, changes: 'looks' },
  placeholder: { help: 'shown in the empty field', default: 'Ask something', ...text, changes: 'looks' },
} as const satisfies Readonly<Record<string, ChatRow>>;

const answers = Object.fromEntries(
  Object.entries(SAMPLING_ROWS as Readonly<Record<string, OptionRow>>).map(([name, row]) => [
    name,
    { ...row, changes: 'answers' as const },
  ]),
);

/** Every option that an attribute gives. */
export const ELEMENT_ROWS: Readonly<Record<string, ChatRow>> = {
  ...CHAT_ROWS,
  ...LOAD_ROWS,
  ...answers,
};

export type Attribute = Dashed<keyof ChatProperties>;

/** The same by attributes, in order. */
export const ATTRIBUTE_ROWS = Object.fromEntries(
  rowsAt(ELEMENT_ROWS, 'attribute').map(([own, name, row]) => [own, [name, row]] as const),
) as { readonly [Name in Attribute]: readonly [name: string, row: ChatRow] };
