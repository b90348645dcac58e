// Package screen is how kith writes for people: words of others made harmless, colours, tables, amounts and ages. All of it is functions
// of values; package cli calls it. It must never print anything that was not cleaned.
package screen
