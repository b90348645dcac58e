package backend

import "testing"

func TestAddressesThatAreTypedIn(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7": "192.0.2.7:6450", "192.0.2.7:7000": "192.0.2.7:7000", "bob.example.org": "bob.example.org:6450", "bob.example.org:1": "bob.example.org:1",
		"2001:db8::7": "[2001:db8::7]:6450", "[2001:db8::7]": "[2001:db8::7]:6450", "[2001:DB8:0::7]:7000": "[2001:db8::7]:7000",
		"fe80::7%lo": "[fe80::7%lo]:6450", "[fe80::7%lo]:7000": "[fe80::7%lo]:7000",
		"2001:db8::7%lo": "[2001:db8::7]:6450", "::ffff:192.0.2.7": "192.0.2.7:6450", "[::ffff:192.0.2.7]:7000": "192.0.2.7:7000",

		"fe80::7": "", "[fe80::7]:6450": "", "fe80::7%no such": "", "fe80::7%": "", "::": "", "0.0.0.0": "", "ff02::fb": "", "ff02::fb%lo": "", "224.0.0.251:6450": "",
		"192.0.2.7:0": "", "192.0.2.7:70000": "", "[2001:db8::7]:0": "", "": "", "a b": "", "bob:x": "",
	} {
		if got, err := withPort(given, 6450); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", given, got, err, want)
		}
	}
}
