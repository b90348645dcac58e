package v1alpha1

import "testing"

// Each class that is shared has one for guests, and whatever else is called nearly so is none.
func TestEachClassHasOneForGuests(t *testing.T) {
	for _, class := range []string{"", "fast", "a.b-c", GuestStorageClass} {
		if is, ofGuests := ClassOfGuests(GuestClass(class)); is != class || !ofGuests {
			t.Errorf("%q: %s is of %q, %t", class, GuestClass(class), is, ofGuests)
		}
	}
	for _, name := range []string{"", "fast", "fastguests.kith.dev", "guests.kith.dev.fast", "kith"} {
		if class, is := ClassOfGuests(name); is {
			t.Errorf("%q is a class for guests, of %q", name, class)
		}
	}
}
