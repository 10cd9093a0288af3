//! Location of sectors: serpentine bands within zones, each track rotated by its skew against the
//! one before.

use super::Mechanics;

/// Logical sectors on tracks.
#[derive(Clone, Debug)]
pub struct TrackLayout {
    surfaces: u64,
    band_tracks: u64,
    zones: Vec<ZoneLayout>,
}

#[derive(Clone, Debug)]
struct ZoneLayout {
    first_sector: u64,
    first_cylinder: u64,
    cylinders: u64,
    sectors: u64,
    /// Angle of sector 0 of the zone's first track, in revolutions.
    angle: f64,
    track_skew: f64,
    head_skew: f64,
    band_skew: f64,
}

/// The location of one sector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhysicalSector {
    pub cylinder: u32,
    pub surface: u32,
    /// Position in its track, in the order of addresses.
    pub index: u32,
    pub track_sectors: u32,
    /// Angle at which the sector begins, in revolutions from 0 to below 1.
    pub angle: f64,
}

impl TrackLayout {
    pub fn new(mechanics: &Mechanics) -> TrackLayout {
        let revolution_ms = 60_000.0 / mechanics.rpm.get();
        let (surfaces, band_tracks) =
            (mechanics.surfaces.get().into(), mechanics.band_tracks.get().into());
        let mut layout = TrackLayout { surfaces, band_tracks, zones: Vec::new() };
        let (mut first_sector, mut first_cylinder, mut angle) = (0, 0, 0.0);
        for zone in &mechanics.zones {
            let cylinders = zone.cylinders.get().into();
            let sectors = zone.sectors.get().into();
            let zone = ZoneLayout {
                first_sector,
                first_cylinder,
                cylinders,
                sectors,
                angle,
                track_skew: zone.track_skew.get(),
                head_skew: zone.head_skew_ms.get() / revolution_ms,
                band_skew: zone.band_skew_ms.get() / revolution_ms,
            };
            first_sector += cylinders * surfaces * sectors;
            first_cylinder += cylinders;
            // The next zone begins as a band does.
            angle = layout.angle_in(&zone, cylinders * surfaces - 1) + zone.band_skew;
            layout.zones.push(zone);
        }
        layout
    }

    /// Number of sectors in the zones, if floating-point numbers can distinguish them and 32 bits
    /// count the cylinders.
    pub fn sectors_of(mechanics: &Mechanics) -> Option<u64> {
        let surfaces = u64::from(mechanics.surfaces.get());
        let mut cylinders = mechanics.zones.iter().map(|zone| zone.cylinders.get());
        cylinders.try_fold(0u32, |sum, zone| sum.checked_add(zone))?;
        mechanics.zones.iter().try_fold(0u64, |sum, zone| {
            let track = u64::from(zone.sectors.get());
            let zone = surfaces.checked_mul(zone.cylinders.get().into())?.checked_mul(track)?;
            sum.checked_add(zone).filter(|sum| *sum < 1 << 53)
        })
    }

    /// Locates `sector`, which lies within the zones.
    pub fn place(&self, sector: u64) -> PhysicalSector {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_sector <= sector) - 1];
        let within = sector - zone.first_sector;
        let (track, index) = (within / zone.sectors, within % zone.sectors);
        let (band, surface, step) = self.band_of(zone, track);
        let first = band * self.band_tracks;
        let tracks = self.band_tracks.min(zone.cylinders - first);
        let column = if surface % 2 == 0 { step } else { tracks - 1 - step };
        let angle = self.angle_in(zone, track) + index as f64 / zone.sectors as f64;
        PhysicalSector {
            cylinder: (zone.first_cylinder + first + column) as u32,
            surface: surface as u32,
            index: index as u32,
            track_sectors: zone.sectors as u32,
            angle: angle.fract(),
        }
    }

    /// The sector at this location, if there is one.
    pub fn sector_at(&self, cylinder: u32, surface: u32, index: u32) -> Option<u64> {
        let (cylinder, surface, index) =
            (u64::from(cylinder), u64::from(surface), u64::from(index));
        let zone =
            &self.zones[self.zones.partition_point(|zone| zone.first_cylinder <= cylinder) - 1];
        let within = cylinder - zone.first_cylinder;
        if within >= zone.cylinders || surface >= self.surfaces || index >= zone.sectors {
            return None;
        }
        let first = within - within % self.band_tracks;
        let tracks = self.band_tracks.min(zone.cylinders - first);
        let column = within - first;
        let step = if surface % 2 == 0 { column } else { tracks - 1 - column };
        let track = first * self.surfaces + surface * tracks + step;
        Some(zone.first_sector + track * zone.sectors + index)
    }

    /// Band, surface and step within band and surface of a zone's track. The last band may be
    /// narrower.
    fn band_of(&self, zone: &ZoneLayout, track: u64) -> (u64, u64, u64) {
        let band = track / (self.band_tracks * self.surfaces);
        let tracks = self.band_tracks.min(zone.cylinders - band * self.band_tracks);
        let within = track - band * self.band_tracks * self.surfaces;
        (band, within / tracks, within % tracks)
    }

    /// Angle at which a zone's track begins, in revolutions: the sum of all skews before it.
    fn angle_in(&self, zone: &ZoneLayout, track: u64) -> f64 {
        let (band, surface, step) = self.band_of(zone, track);
        let tracks = self.band_tracks.min(zone.cylinders - band * self.band_tracks);
        let along = |tracks: u64| (tracks - 1) as f64 * zone.track_skew;
        let surfaces = self.surfaces as f64;
        let whole =
            surfaces * along(self.band_tracks) + (surfaces - 1.0) * zone.head_skew + zone.band_skew;
        zone.angle
            + band as f64 * whole
            + surface as f64 * (along(tracks) + zone.head_skew)
            + step as f64 * zone.track_skew
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, SECTOR, shipped};

    #[test]
    fn sectors_and_places_correspond_at_every_edge_of_zone_band_and_track() {
        for (name, text) in shipped() {
            let model = Model::parse(text).expect("a valid model");
            let Some(mechanics) = &model.mechanics else { continue };
            let layout = TrackLayout::new(mechanics);
            let total = TrackLayout::sectors_of(mechanics).expect("a size");
            assert!(total >= model.size.get() / SECTOR);
            let mut edges = vec![0, total - 1, model.size.get() / SECTOR];
            for zone in &layout.zones {
                let band = layout.band_tracks * zone.sectors;
                let last_band = zone.cylinders / layout.band_tracks * layout.surfaces * band;
                let lengths = [0, zone.sectors, band, band * layout.surfaces, last_band];
                edges.extend(lengths.map(|length| zone.first_sector + length));
            }
            for edge in edges {
                for sector in edge.saturating_sub(2)..(edge + 3).min(total) {
                    let place = layout.place(sector);
                    let back = layout.sector_at(place.cylinder, place.surface, place.index);
                    assert_eq!(back, Some(sector), "{name}: {place:?}");
                }
            }
        }
    }
    #[test]
    fn the_next_track_of_a_band_is_a_neighbour() {
        let (_, text) = shipped().next().expect("a model");
        let layout = TrackLayout::new(
            &Model::parse(text).expect("a valid model").mechanics.expect("a turning disk"),
        );
        let place = |track: u64| layout.place(track * 1200);
        assert_eq!((place(64).cylinder, place(64).surface), (64, 0));
        assert_eq!((place(65).cylinder, place(65).surface), (64, 1));
        assert_eq!((place(129).cylinder, place(129).surface), (0, 1));
        assert_eq!((place(260).cylinder, place(260).surface), (65, 0));
        assert!((place(1).angle - 0.1417).abs() < 1e-9);
    }
}
