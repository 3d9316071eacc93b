import { messageOf, SplitkvError, tried } from '../../../base/errors.js';
import { formatBytes, toBase64 } from '../../../base/math.js';
import { IMAGE_LIMITS, readHeader } from '../../../images/header.js';
import { make, makeButton, name } from '../../shared/dom.js';
import { SOUND_LIMITS } from '../../../sound/limits.js';
import type { Attached } from '../attached.js';
import type { Say } from '../strings.js';
import { icon, iconButton } from './icons.js';

/** Bytes of a text. */
const LONGEST_TEXT = 2 ** 20;
/** Larger pictures (characters of their `data:` URL) are kept as copies of so many pixels a side. */
const SMALL = { letters: 60_000, side: 512 } as const;
/** Pixels of a side of a picture that is shown. */
const SHOWN = 1024;

/** What is in files, and what could not be taken. @param before what is there already */
export async function readAttached(
  files: readonly File[],
  before: readonly Attached[],
  say: Say,
): Promise<{ readonly added: readonly Attached[]; readonly problems: readonly string[] }> {
  const added: Attached[] = [];
  const problems: string[] = [];
  for (const file of files) {
    try {
      const one = await read(file, say);
      const { images: most } = IMAGE_LIMITS;
      const pictures = [...before, ...added, one].filter(({ image }) => image !== undefined);
      if (one.image !== undefined && pictures.length > most) throw new Error(say('most_pictures', { most }));
      added.push(one);
    } catch (error) {
      const isOthers = error instanceof SplitkvError || error instanceof DOMException;
      problems.push(isOthers ? `${file.name}: ${error.message}` : messageOf(error));
    }
  }
  return { added, problems: [...new Set(problems)] };
}

async function read(file: File, say: Say): Promise<Attached> {
  const { name } = file;
  const isSound = file.type.startsWith('audio/');
  const most = isSound ? SOUND_LIMITS.bytes : file.type.startsWith('image/') ? IMAGE_LIMITS.bytes : LONGEST_TEXT;
  if (file.size > most) throw new Error(say('too_large', { name, most: formatBytes(most) }));
  if (isSound) {
    const [{ decodeSound }, { wavFile }] = await Promise.all([
      import('../../../sound/decode.js'),
      import('../../../sound/wav_file.js'),
    ]);
    // Small, and of a kind that is read where the model may be.
    return { name, audio: `data:audio/wav;base64,${toBase64(wavFile(await decodeSound(file)))}` };
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  let format: string;
  try {
    ({ format } = readHeader(bytes));
  } catch (error) {
    // What is a picture by its own word has a reason of its own.
    if (/^image\/(png|jpeg|webp|gif)$/.test(file.type)) throw error;
    const text = textOf(bytes);
    if (text === undefined) throw new Error(say('not_attached', { name }), { cause: error });
    return { name, text };
  }
  const image = `data:image/${format};base64,${toBase64(bytes)}`;
  if (image.length <= SMALL.letters) return { name, image };
  const canvas = make('canvas', '');
  await draw(canvas, image, SMALL.side);
  return { name, image, small: canvas.toDataURL('image/jpeg', 0.8) };
}

/** undefined: it is none. */
function textOf(bytes: Uint8Array): string | undefined {
  const text = tried(() => new TextDecoder('utf-8', { fatal: true }).decode(bytes)) ?? '';
  return text.includes('\0') || text.trim() === '' ? undefined : text;
}

/** A picture, at most so many pixels a side. Not as an <img>: strict policies let pages draw, but not show what they made. */
async function draw(canvas: HTMLCanvasElement, image: string, side: number): Promise<void> {
  const [head = '', base64 = ''] = image.split(',', 2);
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: head.slice(5, -7) }));
  const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext('2d')!;
  context.fillStyle = '#fff'; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}

/** What goes with a question. @param remove takes one away, where that can be */
export function chips(attached: readonly Attached[], say: Say, remove?: (one: Attached) => void): HTMLElement {
  const list = make('ul', 'chips');
  list.role = 'list';
  list.ariaLabel = say('attached');
  for (const one of attached) {
    const chip = make('li', 'chip');
    const kept = say(one.image === undefined ? 'attached_gone' : 'attached_smaller');
    const about = one.reduced ? `${one.name}: ${kept}` : one.name;
    if (one.image !== undefined) chip.append(picture(one.image, about, remove === undefined));
    else chip.append(text(one, remove === undefined, about));
    if (remove) {
      const button = iconButton('remove', () => remove(one), 'remove');
      name(button, say('remove_attached', { name: one.name }));
      chip.append(button);
    }
    list.append(chip);
  }
  return list;
}

/** @param grows it is shown larger when it is pressed */
function picture(image: string, about: string, grows: boolean): HTMLElement {
  const canvas = make('canvas', '');
  void draw(canvas, image, SHOWN).catch(() => canvas.replaceWith(icon('file')));
  if (!grows) {
    canvas.role = 'img';
    canvas.ariaLabel = canvas.title = about;
    return canvas;
  }
  const button = makeButton('picture', canvas, () => {
    button.ariaExpanded = String(button.classList.toggle('large'));
  });
  button.ariaExpanded = 'false';
  name(button, about);
  return button;
}

function text({ name: called, text: all, audio }: Attached, opens: boolean, about: string): HTMLElement {
  const size = all === undefined ? '' : formatBytes(new TextEncoder().encode(all).length);
  const head = [
    icon(audio === undefined ? 'file' : 'microphone'),
    make('span', 'chip-name', all === undefined ? about : called),
    make('span', 'chip-size', size),
  ];
  if (!opens || all === undefined) return make('span', 'chip-head', ...head);
  const whole = make('pre', '', all);
  whole.tabIndex = 0;
  return make('details', '', make('summary', 'chip-head', ...head), whole);
}
