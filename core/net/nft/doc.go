// Package nft keeps nftables tables of Kith's own in the kernel. Callers describe a table as a value (Table, with rules built from the functions
// here); a Keeper applies only what differs, and notices when somebody removes it. core/provide/fence, guestnet and overlay use it. It never
// touches a table that it was not given, and does not know what a table is for.
package nft
