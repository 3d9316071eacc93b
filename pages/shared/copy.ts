/** A button that copies a text, and says so for a moment. Where the browser doesn't allow it, it says that. */
export function copyOnClick(button: HTMLButtonElement, text: () => string): void {
  const label = button.textContent ?? '';
  let later: ReturnType<typeof setTimeout> | undefined;
  button.addEventListener('click', () => {
    const say = (said: string): void => {
      button.textContent = said;
      clearTimeout(later);
      later = setTimeout(() => (button.textContent = label), 3000);
    };
    navigator.clipboard.writeText(text()).then(
      () => say('Copied'),
      () => say("Can't copy here"),
    );
  });
}

/** @returns whether the browser allowed it */
export const copyText = (text: string): Promise<boolean> =>
  navigator.clipboard.writeText(text).then(
    () => true,
    () => false,
  );
