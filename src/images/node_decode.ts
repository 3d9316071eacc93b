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
  const { data, info } = await sharp(bytes, {
    limitInputPixels: IMAGE_LIMITS.pixels,
    failOn: 'truncated',
    ignoreIcc: true,
  })
    .rotate() // as EXIF says
    .toColourspace('srgb')
    .removeAlpha()
    .raw({ depth: 'uchar' })
    .toBuffer({ resolveWithObject: true });
  return { width: info.width, height: info.height, data: Uint8Array.from(data) };
}
