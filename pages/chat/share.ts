import { checkMessages, type ShownMessage } from '../../src/app/chat/session.js';

/** A link's text that is longer is none of ours: a short one could unpack to gigabytes. */
const LONGEST = 4 * 2 ** 20;
const PREFIX = '#share=';

/** The address's fragment with what was said: questions and answers alone, compressed. It never leaves the browser that opens it. */
export async function shareFragment(messages: readonly ShownMessage[]): Promise<string> {
  const texts = messages.map(({ content, attached = [] }) =>
    attached.length === 0 ? content : `${attached.map(({ name }) => `[${name}]`).join(' ')}\n\n${content}`.trim(),
  );
  const packed = await bytesOf(
    new Blob([JSON.stringify(texts)]).stream().pipeThrough(new CompressionStream('deflate-raw')),
  );
  const base64 = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(''));
  return PREFIX + base64.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** What a fragment has; undefined: it is no shared conversation. @throws Error for one that is broken */
export async function sharedMessages(fragment: string): Promise<readonly ShownMessage[] | undefined> {
  if (!fragment.startsWith(PREFIX)) return undefined;
  try {
    const base64 = fragment.slice(PREFIX.length).replaceAll('-', '+').replaceAll('_', '/');
    const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const text = new TextDecoder().decode(
      await bytesOf(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'))),
    );
    const texts = JSON.parse(text) as string[];
    return checkMessages(texts.map((content, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', content })));
  } catch (error) {
    throw new Error('This link holds no whole conversation: it was cut or changed.', { cause: error });
  }
}

async function bytesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<Uint8Array> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for (const reader = stream.getReader(); ;) {
    const { value, done } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    length += value.length;
    if (length > LONGEST) {
      await reader.cancel();
      throw new Error('too long');
    }
    parts.push(value);
  }
}
