/* What drawings on a canvas write: names that fit, and numbers that are round. */

/* The least of 1, 2, 5, 10, 20 ... that is no less than a number. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least);
}

/* A name cut to a width of so many pixels; its end says most. */
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let cut = 1;
  while (cut < text.length && pen.measureText(`…${text.slice(cut)}`).width > width) cut++;
  return `…${text.slice(cut)}`;
}
