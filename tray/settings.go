package tray

import (
	"fmt"
	"log/slog"

	"kith.dev/tray/notice"
)

// loadSettings reads the user's choice; a file that cannot be read is as good as none.
func loadSettings(log *slog.Logger) (path string, s notice.Settings, err error) {
	if path, err = notice.SettingsPath(); err != nil {
		return "", s, fmt.Errorf("the tray's settings: %w", err)
	}
	if s, err = notice.LoadSettings(path); err != nil {
		log.Warn("the tray's settings are not used", "err", err)
	}
	return path, s, nil
}
