/** Text that build.mjs puts into the bundle: the style sheet, and the worker's own small bundle. */
declare module "*.css" {
  const text: string;
  export default text;
}
declare module "inline-worker:*" {
  const code: string;
  export default code;
}
