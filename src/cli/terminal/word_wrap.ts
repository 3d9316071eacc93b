/**
 * Breaks the lines of a text that arrives in pieces between words, at `columns`. Code between ``` and words longer than a line stay as
 * they are. The text itself doesn't change where it has line breaks of its own.
 */
export class WordWrap {
  #column = 0;
  #word = '';
  #space = '';
  #line = '';
  #isCode = false;
  #began = false;

  constructor(private readonly columns: number) {}

  /** What can be shown of the text so far; the last word waits for its end. */
  push(text: string): string {
    let out = '';
    for (const letter of text) {
      if (!this.#began && /\s/.test(letter)) continue; // a template's answer often begins with a space
      this.#began = true;
      if (letter === '\n') {
        out += `${this.end()}\n`;
        if (/^\s*```/.test(this.#line)) this.#isCode = !this.#isCode;
        this.#column = 0;
        this.#line = '';
        this.#space = '';
        continue;
      }
      this.#line += letter;
      if (letter === ' ') {
        out += this.end();
        this.#space += letter;
      } else this.#word += letter;
    }
    return out;
  }

  /** The rest: the word that waits. */
  end(): string {
    const word = this.#word;
    if (word === '') return '';
    this.#word = '';
    const width = Array.from(word).length;
    const breaks = !this.#isCode && this.#column > 0 && this.#column + this.#space.length + width > this.columns;
    const before = breaks ? '\n' : this.#space;
    this.#column = (breaks ? 0 : this.#column + this.#space.length) + width;
    this.#space = '';
    return before + word;
  }
}
