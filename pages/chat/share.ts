import { pack, unpack } from '../shared/packed.js';
import { checkMessages, type ShownMessage } from '../../src/app/chat/session.js';

/** A link's text that is longer is none of ours: a short one could unpack to gigabytes. */
const LONGEST = 4 * 2 ** 20;
const PREFIX = '#share=';

/** The address's fragment with what was said: questions and answers alone, compressed. It never leaves the browser that opens it. */
export async function shareFragment(messages: readonly ShownMessage[]): Promise<string> {
  const texts = messages.map(({ content, attached = [] }) =>
    attached.length === 0 ? content : `${attached.map(({ name }) => `[${name}]`).join(' ')}\n\n${content}`.trim(),
  );
  return PREFIX + (await pack(JSON.stringify(texts), LONGEST));
}

/** What a fragment has; undefined: it is no shared conversation. @throws Error for one that is broken */
export async function sharedMessages(fragment: string): Promise<readonly ShownMessage[] | undefined> {
  if (!fragment.startsWith(PREFIX)) return undefined;
  try {
    const texts = JSON.parse(await unpack(fragment.slice(PREFIX.length), LONGEST)) as string[];
    return checkMessages(texts.map((content, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', content })));
  } catch (error) {
    throw new Error('This link holds no whole conversation: it was cut or changed.', { cause: error });
  }
}
