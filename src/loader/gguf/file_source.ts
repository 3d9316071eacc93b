import { usageError } from '../../base/errors.js';
import type { Source } from '../source.js';
import { partNames } from './file.js';

export const isGgufName = (file: string): boolean => /\.gguf$/i.test(file);

/** The source with `file` of it as its model. What is cached of it is filed under the file's own URL. */
export function ggufSource(folder: Source, file: string): Source {
  return {
    name: folder.name,
    gguf: file,
    ...(folder.url !== undefined && {
      url: `${folder.url.replace(/\/?$/, '/')}${file.split('/').map(encodeURIComponent).join('/')}`,
    }),
    size: (name, signal) => folder.size(name, signal),
    read: (name, start, end, signal) => folder.read(name, start, end, signal),
    version: (name, signal) => folder.version(name, signal),
    sha256: async (name, signal) => folder.sha256?.(name, signal),
    absence: (name) => folder.absence?.(name),
  };
}

/**
 * The GGUF model among the files of a folder (parts of a split one count as one; projectors of images are no models), or
 * undefined where there is none. Throws `usage` where there are several.
 */
export function findGguf(files: readonly string[], folder: string): string | undefined {
  const models = files.filter((file) => isGgufName(file) && !/^mmproj/i.test(file.split('/').at(-1)!));
  const firsts = [...new Set(models.map((file) => partNames(file)[0]!))].sort();
  if (firsts.length > 1)
    throw usageError(
      `${folder} holds ${firsts.length} GGUF models (${firsts.join(', ')}); give the file that is meant`,
    );
  return firsts[0];
}
