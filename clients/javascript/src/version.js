/** The version of this client; a test compares it with that of the package. */
export const VERSION = "0.1.0";
