import { usageError } from '../../base/errors.js';

/** Whether it is a model that was dropped; what else there is goes with a question. */
export const isModel = (entries: readonly (FileSystemEntry | File)[]): boolean =>
  entries.some((entry) => !(entry instanceof File) && entry.isDirectory) ||
  entries.some(({ name }) => /\.(gguf|safetensors)$/i.test(name));

/** More files than a model folder has: somebody dropped something else. */
const MOST_FILES = 1000;

/**
 * The files of what was dropped: a .gguf file, or a folder with what is in it.
 * @throws SplitkvError `usage` where that is nothing, or far too much
 */
export async function droppedFiles(entries: readonly (FileSystemEntry | File)[]): Promise<File[]> {
  const files: File[] = [];
  const read = async (entry: FileSystemEntry): Promise<void> => {
    if (files.length > MOST_FILES)
      throw usageError(`more than ${MOST_FILES} files were dropped; expected a model folder or .gguf file`);
    if (entry.isFile) {
      files.push(await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)));
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      // It gives some hundred at a time, and none at the end.
      const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (some.length === 0) return;
      for (const child of some) await read(child);
    }
  };
  for (const entry of entries) {
    if (entry instanceof File) files.push(entry);
    else await read(entry);
  }
  if (files.length === 0) throw usageError('nothing was dropped; expected a model folder or .gguf file');
  return files;
}
