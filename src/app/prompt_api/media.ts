import type { ContentPart } from '../../index.js';
import { monoOf } from '../../sound/mono.js';
import { wavFile } from '../../sound/wav_file.js';
import type { LanguageModelAudio, LanguageModelImage } from './types.js';

/** What a message says: a text, or parts of it as they were given. */
export type Content = string | readonly GivenPart[];

export type GivenPart =
  | { readonly type: 'text'; readonly value: string }
  | { readonly type: 'image'; readonly value: LanguageModelImage }
  | { readonly type: 'audio'; readonly value: LanguageModelAudio };

/** As conversations keep it: bytes of files. @throws TypeError for what is no image or recording */
export async function readContent(content: Content): Promise<string | readonly ContentPart[]> {
  if (typeof content === 'string') return content;
  return Promise.all(
    content.map(async (part): Promise<ContentPart> => {
      if (part.type === 'text') return { type: 'text', text: part.value };
      if (part.type === 'image') return { type: 'image', image: await imageFile(part.value) };
      return { type: 'audio', audio: await soundFile(part.value) };
    }),
  );
}

/** Of a file, or undefined. */
async function bytesOf(value: unknown): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (value instanceof Blob) return new Uint8Array(await value.arrayBuffer());
  if (value instanceof ArrayBuffer) return new Uint8Array(value.slice(0));
  if (!ArrayBuffer.isView(value)) return undefined;
  return Uint8Array.from(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
}

async function imageFile(value: LanguageModelImage): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await bytesOf(value);
  if (bytes) return bytes;
  if (typeof createImageBitmap !== 'function' || typeof value !== 'object')
    throw new TypeError('the value of an image is neither a Blob nor bytes nor what a canvas can draw');
  const bitmap = await createImageBitmap(value as ImageBitmapSource);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext('2d')!.drawImage(bitmap, 0, 0);
  bitmap.close();
  return (await bytesOf(await canvas.convertToBlob()))!;
}

async function soundFile(value: LanguageModelAudio): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await bytesOf(value);
  if (bytes) return bytes;
  const { length, numberOfChannels: channels, sampleRate: rate } = value as Partial<AudioBuffer>;
  if (!length || !channels || !rate)
    throw new TypeError('the value of a recording is no Blob, no bytes and no AudioBuffer');
  return wavFile(monoOf(value as AudioBuffer), rate);
}
