package guestnet

// Group of the links (IFLA_GROUP, "kg" in ASCII) that lead to guests. The engine puts a link into it, with the pod's UID as its alias,
// before the pod's first program runs.
const Group = 0x6b67

// Runtime is the RuntimeClass whose pods get such a link. The engine makes it, by the same name.
const Runtime = "kith-guest"
