// @ts-check
// Starts the page on the server it came from.
import {start} from "./main.js";
import {FetchSource} from "./source.js";

start(new FetchSource());
