// Package find is the floor that knows who is near, what they are called and how they are reached.
//
// Comes in: announcements on the LAN, answers of name servers, addresses that owners type. Goes out: one list of clusters with names,
// addresses and what is agreed with each. Never here: trust. Whatever is heard is a hint until a key proves it.
package find
