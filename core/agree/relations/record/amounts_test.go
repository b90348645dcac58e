package record

import "testing"

func TestExceedsNamesTheResource(t *testing.T) {
	have, _ := Quantities(map[string]string{"cpu": "2", "memory": "4Gi"})
	for _, tc := range []struct {
		want map[string]string
		over string
	}{
		{map[string]string{"cpu": "2", "memory": "4Gi"}, ""},
		{map[string]string{"cpu": "2001m"}, "cpu"},
		{map[string]string{"nvidia.com/gpu": "1"}, "nvidia.com/gpu"},
		{map[string]string{"nvidia.com/gpu": "0"}, ""},
	} {
		want, err := Quantities(tc.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := Exceeds(want, have); got != tc.over {
			t.Errorf("exceeds(%v) = %q, want %q", tc.want, got, tc.over)
		}
	}
}

func TestQuantitiesOfAPeerAreChecked(t *testing.T) {
	for _, bad := range []string{"", "-1", "lots", "1e999999999999"} {
		if _, err := Quantities(map[string]string{"cpu": bad}); err == nil {
			t.Errorf("%q was taken for an amount", bad)
		}
	}
}
