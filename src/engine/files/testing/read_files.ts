import type { Source } from '../../../loader/index.js';
import { openModelFiles, openTokenizer } from '../model_files.js';

/** What a tokenizer is asked: what expressions stumble over, and what every text has. */
const TEXT = `${'a'.repeat(41)}b the cat${'a'.repeat(200)} \n\t ${' '.repeat(200)}ab`;

/** All that reading a model does before a GPU is asked, and a chat's first prompt. @throws what refuses it */
export async function readAll(source: Source, text = ''): Promise<void> {
  const files = await openModelFiles(source);
  if (source.gguf !== undefined || (await hasWeights(source))) await files.reader();
  const { tokenizer } = await openTokenizer(files);
  if (!tokenizer) return;
  tokenizer.fewestTokens(TEXT.repeat(30), 1);
  const ids = tokenizer.encode(TEXT + text);
  tokenizer.decode(ids.slice(0, 100));
  if (!tokenizer.hasChatTemplate) return;
  const messages = tokenizer.asText([{ role: 'user', content: `a <|user|> ${text}` }]);
  tokenizer.encode(tokenizer.applyChatTemplate(messages), { addSpecial: false });
}

async function hasWeights(source: Source): Promise<boolean> {
  for (const file of ['model.safetensors', 'model.safetensors.index.json'])
    if ((await source.size(file)) !== undefined) return true;
  return false;
}
