package sharing

import (
	"strings"
	"testing"
	"time"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// hoursOf reads "Mon-Fri 09:00-17:00", as kith share --hours does.
func hoursOf(t *testing.T, text string) (all []v1alpha1.SharingHours) {
	t.Helper()
	list, err := api.ParseHours("hours", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		one := v1alpha1.SharingHours{From: h.From, To: h.To}
		for _, d := range h.Days {
			one.Days = append(one.Days, v1alpha1.Weekday(d))
		}
		all = append(all, one)
	}
	return all
}

func TestHours(t *testing.T) {
	// 2026-11-30 is a Monday. In Berlin clocks are put forward on 2026-03-29 at 02:00, and back on 2026-10-25 at 03:00.
	for _, c := range []struct {
		hours, at string
		want      string // "open" or "closed", and until when
	}{
		{"", "2026-11-30 03:00", "open"},
		{"Mon-Fri 09:00-17:00", "2026-11-30 08:59", "closed until Mon 30 Nov 09:00 CET"},
		{"Mon-Fri 09:00-17:00", "2026-11-30 09:00", "open until Mon 30 Nov 17:00 CET"},
		{"Mon-Fri 09:00-17:00", "2026-11-30 16:59", "open until Mon 30 Nov 17:00 CET"},
		{"Mon-Fri 09:00-17:00", "2026-11-30 17:00", "closed until Tue 1 Dec 09:00 CET"},
		{"Mon-Fri 09:00-17:00", "2026-12-04 17:00", "closed until Mon 7 Dec 09:00 CET"},
		{"Wed 09:00-10:00", "2026-12-02 10:00", "closed until Wed 9 Dec 09:00 CET"},
		{"22:00-06:00", "2026-11-30 21:59", "closed until Mon 30 Nov 22:00 CET"},
		{"22:00-06:00", "2026-11-30 23:00", "open until Tue 1 Dec 06:00 CET"},
		{"22:00-06:00", "2026-11-30 05:59", "open until Mon 30 Nov 06:00 CET"},
		{"Sun 22:00-06:00", "2026-11-30 05:59", "open until Mon 30 Nov 06:00 CET"}, // it began on Sunday
		{"Mon 22:00-06:00", "2026-11-30 05:59", "closed until Mon 30 Nov 22:00 CET"},
		{"Mon 22:00-06:00", "2026-12-01 05:59", "open until Tue 1 Dec 06:00 CET"},
		{"Sat,Sun 00:00-24:00", "2026-12-05 12:00", "open until Mon 7 Dec 00:00 CET"}, // two days are one time
		{"Sat,Sun 00:00-24:00", "2026-12-04 23:59", "closed until Sat 5 Dec 00:00 CET"},
		{"Fri 18:00-24:00; Sat,Sun 00:00-24:00", "2026-12-04 18:00", "open until Mon 7 Dec 00:00 CET"},
		{"09:00-12:00; 11:00-13:00; 15:00-16:00", "2026-11-30 09:30", "open until Mon 30 Nov 13:00 CET"},
		{"00:00-24:00", "2026-11-30 09:30", "open"}, // all week
		{"Mon-Sat 00:00-24:00", "2026-11-30 00:00", "open until Sun 6 Dec 00:00 CET"},
		// The night in which clocks are put forward has an hour less, and that in which they are put back one more.
		{"22:00-06:00", "2026-03-28 23:00", "open until Sun 29 Mar 06:00 CEST"},
		{"22:00-06:00", "2026-10-24 23:00", "open until Sun 25 Oct 06:00 CET"},
		{"02:30-03:30", "2026-03-29 01:59", "closed until Sun 29 Mar 03:00 CEST"}, // there is no 02:30: they begin as soon as clocks show more
		{"02:15-02:45", "2026-03-29 01:59", "closed until Mon 30 Mar 02:15 CEST"}, // all of it is skipped
		{"01:00-02:30", "2026-03-29 01:30", "open until Sun 29 Mar 03:00 CEST"},
		{"02:30-04:00", "2026-10-25 01:59", "closed until Sun 25 Oct 02:30 CEST"}, // the first of the two
		{"01:00-02:30", "2026-10-25 01:30", "open until Sun 25 Oct 02:30 CEST"},
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04", c.at, berlin(t))
		if err != nil {
			t.Fatal(err)
		}
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Hours, s.TimeZone = hoursOf(t, c.hours), "Europe/Berlin" })
		local := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Hours = p.Spec.Hours })
		for _, open := range []Open{Hours(&p, at.UTC()), Hours(&local, at)} { // by its own zone, and by that of the machine
			got := map[bool]string{true: "open", false: "closed"}[open.Now]
			if !open.Changes.IsZero() {
				got += " until " + Clock(open.Changes)
			}
			if got != c.want {
				t.Errorf("%q at %s: %s, want %s", c.hours, c.at, got, c.want)
			}
		}
	}
}

// Whatever the hours and the moment: what is said of the next change is so a moment before it and not any more then.
func TestHoursChangeWhenTheySay(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "Africa/Casablanca"}
	all := []string{"22:00-06:00", "Mon-Fri 09:00-17:00", "Sun 01:00-03:00", "02:15-02:45", "Sat,Sun 00:00-24:00", "Sat 23:30-23:00", "01:30-02:00; 02:00-02:30", "00:00-24:00"}
	for _, zone := range zones {
		for _, text := range all {
			p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Hours, s.TimeZone = hoursOf(t, text), zone })
			at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			for range 500 { // until the end of October, where it is each day
				open := Hours(&p, at)
				if open.Changes.IsZero() {
					if !open.Now {
						t.Fatalf("%s %s: closed for ever at %s", zone, text, at)
					}
					break
				}
				if before := Hours(&p, open.Changes.Add(-time.Second)); before.Now != open.Now || !before.Changes.Equal(open.Changes) {
					t.Fatalf("%s %s at %s: %+v, and a second before its change %+v", zone, text, at, open, before)
				}
				if after := Hours(&p, open.Changes); after.Now == open.Now || !after.Changes.After(open.Changes) {
					t.Fatalf("%s %s at %s: %+v, and then %+v", zone, text, at, open, after)
				}
				at = open.Changes
			}
		}
	}
}

func TestOutsideOfItsHoursNothingIsOffered(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, berlin(t))
	for name, c := range map[string]struct {
		change func(*v1alpha1.SharingPolicySpec)
		at     time.Time
		why    api.NoOffer
		says   string
	}{
		"in its hours":     {nil, at, "", ""},
		"before":           {nil, at.Add(-time.Minute), api.NoOfferClosed, "it is outside of the hours of SharingPolicy p, which begin Mon 30 Nov 09:00 CET"},
		"an hour is left":  {nil, at.Add(7 * time.Hour), "", ""},
		"less is left":     {nil, at.Add(7*time.Hour + time.Second), api.NoOfferCloses, "the hours of SharingPolicy p end Mon 30 Nov 17:00 CET, too soon for a contract"},
		"paused":           {func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }, at.Add(-time.Minute), api.NoOfferPaused, "sharing is paused"},
		"of no known zone": {func(s *v1alpha1.SharingPolicySpec) { s.TimeZone = "Europe/Nowhere" }, at, api.NoOfferClosed, `the time zone "Europe/Nowhere", which is not known here`},
	} {
		p := *Default(50)
		p.Name, p.Spec.Hours, p.Spec.TimeZone = "p", hoursOf(t, "09:00-17:00"), "Europe/Berlin"
		if c.change != nil {
			c.change(&p.Spec)
		}
		in := OfferInput{Policy: &p, Now: c.at, SignedBy: c.at}
		in.Supply.Nodes = list("cpu", "8", "memory", "16Gi", "pods", "110")
		_, _, no := Weigh(in)
		switch {
		case no == nil && c.why == "":
		case no == nil || no.Why != c.why || !strings.Contains(no.Reason, c.says):
			t.Errorf("%s: %+v, want %s", name, no, c.why)
		}
	}
}

// kubectl writes a time zone that is none: its owner is told, where the policy is shown.
func TestATimeZoneThatIsNotKnownIsNoted(t *testing.T) {
	p := Default(50)
	p.Spec.TimeZone = "Europe/Nowhere"
	if notes := Notes(p, supply.Supply{}, nil); len(notes) != 0 { // of no hours
		t.Error(notes)
	}
	p.Spec.Hours = hoursOf(t, "09:00-17:00")
	if notes := Notes(p, supply.Supply{}, nil); len(notes) != 1 || !strings.Contains(notes[0], `"Europe/Nowhere", is not known here`) {
		t.Error(notes)
	}
}

func TestHoursThatCannotBeMeant(t *testing.T) {
	for field, change := range map[string]func(*v1alpha1.SharingPolicySpec){
		"spec.hours[0].days": func(s *v1alpha1.SharingPolicySpec) { s.Hours[0].Days = []v1alpha1.Weekday{"Moon"} },
		"spec.hours[0].from": func(s *v1alpha1.SharingPolicySpec) { s.Hours[0].From = "24:00" },
		"spec.hours[0].to":   func(s *v1alpha1.SharingPolicySpec) { s.Hours[0].To = "9:00" },
		"spec.timeZone":      func(s *v1alpha1.SharingPolicySpec) { s.TimeZone = "../../etc/passwd" },
	} {
		p := Default(50)
		p.Spec.Hours = hoursOf(t, "09:00-17:00")
		if change(&p.Spec); !strings.Contains(Validate(p).Error(), field) {
			t.Errorf("%s: %v", field, Validate(p))
		}
	}
}
