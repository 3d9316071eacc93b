/** How models take a text with a gap in it. Rows: tokens before what precedes the gap, before what follows it, and before the answer. */
const FILLS: readonly (readonly [prefix: string, suffix: string, ...middle: string[]])[] = [
  ['<|fim_prefix|>', '<|fim_suffix|>', '<|fim_middle|>'], // Qwen2.5-Coder, Granite 4, CodeGemma
  ['<fim_prefix>', '<fim_suffix>', '<fim_middle>'], // StarCoder 2, Granite Code
  ['<fim-prefix>', '<fim-suffix>', '<fim-middle>'],
  ['<|code_prefix|>', '<|code_suffix|>', '<|code_middle|>'], // GLM
  ['<｜fim▁begin｜>', '<｜fim▁hole｜>', '<｜fim▁end｜>'], // DeepSeek
  ['▁<PRE>', '▁<SUF>', '▁<MID>'], // Code Llama
  ['[PREFIX]', '[SUFFIX]'], // Codestral: what follows comes first
];
/** Between files, of those that come before the text. */
const FILES = ['<|file_sep|>', '<file_sep>'];
const REPOSITORIES = ['<|repo_name|>', '<repo_name>', '<reponame>'];
/** End an answer beside those. */
const ENDS = ['<|fim_pad|>', '<fim_pad>', '<|endoftext|>', '▁<EOT>', '<|cursor|>'];

interface FillParts<Text> {
  readonly prefix: Text;
  readonly suffix: Text;
  readonly files?: readonly { readonly name: string; readonly text: Text }[] | undefined;
}

export interface FillFormat {
  /** Ids that no answer goes on behind. */
  readonly ends: readonly number[];
  /** The prompt, without what begins every text. @param encode ids of a text whose control tokens are text */
  write(parts: FillParts<string>, encode: (text: string) => readonly number[]): number[];
}

/** @returns undefined where the vocabulary has none of the tokens */
export function fillFormat(idOf: (token: string) => number | undefined): FillFormat | undefined {
  const ids = (tokens: readonly string[]): number[] => tokens.map(idOf).filter((id) => id !== undefined);
  const row = FILLS.find((tokens) => ids(tokens).length === tokens.length);
  if (!row) return undefined;
  const [before, behind, ...answer] = ids(row);
  const [[file], [repository]] = [ids(FILES), ids(REPOSITORIES)];
  return {
    ends: ids([...row, ...FILES, ...REPOSITORIES, ...ENDS]),
    write({ prefix, suffix, files = [] }, encode) {
      const mark = (id: number | undefined, text: string): number[] => [
        ...(id === undefined ? [] : [id]),
        ...encode(text),
      ];
      const others = files.flatMap(({ name, text }) => mark(file, `${name}\n${text}${file === undefined ? '\n' : ''}`));
      const head = files.length === 0 ? [] : [...mark(repository, 'project\n'), ...others, ...mark(file, 'file\n')];
      const [first, second] = [mark(before, prefix), mark(behind, suffix)];
      return answer.length > 0 ? [...head, ...first, ...second, ...answer] : [...head, ...second, ...first];
    },
  };
}
