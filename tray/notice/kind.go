package notice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Kind is what a notice is about. The user chooses which kinds are shown.
type Kind string

// The kinds.
const (
	Request      Kind = "request"
	Confirm      Kind = "confirm"
	Accepted     Kind = "accepted"
	Declined     Kind = "declined"
	Expired      Kind = "expired"
	PeerLost     Kind = "peerLost"
	PeerBack     Kind = "peerBack"
	Ended        Kind = "ended"
	Lowering     Kind = "lowering"
	GuestRefused Kind = "guestRefused"
	TetherMade   Kind = "tetherMade"
	TetherLost   Kind = "tetherLost"
	TetherEnded  Kind = "tetherEnded"
	Sharing      Kind = "sharing"
	Slept        Kind = "slept"
	MaySleep     Kind = "maySleep"
	Trouble      Kind = "trouble"
	// Tray is what the tray itself has to say, such as that this desktop shows no icons. It is always shown.
	Tray Kind = "tray"
)

// Kinds are those that can be turned off, in the order in which a menu lists them.
var Kinds = []struct {
	Kind  Kind
	Label string // says to people what it is about
	many  string // the title of many at once; %s is how many
}{
	{Request, "A peer asks to use this laptop", "%s requests wait for your answer"},
	{Confirm, "A peer accepted: compare the code", "%s peers accepted: compare the codes"},
	{Accepted, "A request is accepted", "%s requests were accepted"},
	{Declined, "A request is declined", "%s requests were declined"},
	{Expired, "A request lapses", "%s requests have lapsed"},
	{PeerLost, "A peer cannot be reached", "%s peers cannot be reached"},
	{PeerBack, "A peer is back", "%s peers are back"},
	{Ended, "A peer ends a contract", "%s peers ended their contracts"},
	{Lowering, "A peer lowers what it grants", "%s peers lower what they grant"},
	{GuestRefused, "A guest is refused", "%s guests were refused"},
	{TetherMade, "Tethered to a company's cluster", "Tethered, %s times"},
	{TetherLost, "The company's cluster cannot be reached", "The company's cluster was lost, %s times"},
	{TetherEnded, "Untethered", "Untethered, %s times"},
	{Sharing, "What is shared changes", "What is shared has changed, %s times"},
	{Slept, "Guests stood still while this laptop slept", "Guests stood still, %s times"},
	{MaySleep, "This laptop is kept awake no more", "This laptop is kept awake no more, %s times"},
	{Trouble, "Kith has trouble", "Kith has %s troubles"},
}

// Settings are the user's choice. The zero value shows every kind.
type Settings struct {
	Muted []Kind `json:"muted"` // kinds that are not shown
	// Ready is the ID of the cluster of which the user was told that it is ready for the first time.
	Ready string `json:"ready,omitempty"`
}

// Shows tells whether notices of the kind are shown.
func (s Settings) Shows(k Kind) bool { return k == Tray || !slices.Contains(s.Muted, k) }

// With gives s with one kind shown or not; s itself is left alone.
func (s Settings) With(k Kind, shown bool) Settings {
	muted := slices.DeleteFunc(slices.Clone(s.Muted), func(m Kind) bool { return m == k })
	if !shown {
		muted = append(muted, k)
	}
	slices.Sort(muted)
	s.Muted = muted
	return s
}

// SettingsPath is where the user's choice is kept: kith/notifications.json under the directory for configuration.
func SettingsPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the directory for settings: %w", err)
	}
	return filepath.Join(dir, "kith", "notifications.json"), nil
}

// maxSettings bounds the file that is read, in bytes.
const maxSettings = 64 << 10

// LoadSettings reads the user's choice. A file that is not there is the zero value.
func LoadSettings(path string) (s Settings, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil && info.Size() > maxSettings {
		err = fmt.Errorf("it has %d bytes, %d are allowed", info.Size(), maxSettings)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read which notifications are wanted from %s, so all are: %w", path, err)
	}
	return s, nil
}

// Save keeps the user's choice. The file is whole at every moment.
func (s Settings) Save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path+".new", append(b, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("keep which notifications are wanted in %s: %w", path, err)
	}
	return nil
}
