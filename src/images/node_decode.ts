import { unsupportedError } from '../base/errors.js';
import { IMAGE_LIMITS } from './header.js';
import type { Picture } from './picture.js';

/** Node has no decoder of its own. @throws SplitkvError `unsupported` where the package is missing; what it throws of a broken file */
export async function decodeInNode(bytes: Uint8Array): Promise<Picture> {
  let sharp: (typeof import('sharp'))['default'];
  try {
    ({ default: sharp } = await import('sharp'));
  } catch (error) {
    throw unsupportedError(`images in Node need the npm package 'sharp': npm install sharp. ${String(error)}`, error);
  }
  // Turned as EXIF says.
  const image = sharp(bytes, { limitInputPixels: IMAGE_LIMITS.pixels, failOn: 'truncated', ignoreIcc: true }).rotate();
  const { space } = await image.metadata();
  const isPrint = space === 'cmyk';
  const made = isPrint
    ? image.pipelineColourspace(space).toColourspace(space)
    : image.toColourspace('srgb').removeAlpha();
  const { data, info } = await made.raw({ depth: 'uchar' }).toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  return { width, height, data: isPrint ? ofInks(data) : Uint8Array.from(data) };
}

/** Of cyan, magenta, yellow and black of each pixel, without their profiles, as Pillow and browsers do it. */
function ofInks(inks: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array((inks.length / 4) * 3);
  for (let at = 0; at < out.length; at++) {
    const pixel = Math.floor(at / 3) * 4;
    out[at] = Math.round(((255 - inks[pixel + (at % 3)]!) * (255 - inks[pixel + 3]!)) / 255);
  }
  return out;
}
