/** What stands in a prompt for a picture of `count` rows, as transformers' Gemma3Processor writes it. */
export const gemma3Text = (count: number): string =>
  `\n\n<start_of_image>${'<image_soft_token>'.repeat(count)}<end_of_image>\n\n`;
